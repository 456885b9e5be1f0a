"""What a server offers: tools, resources, prompts, and the functions behind them."""

__all__: list[str] = []

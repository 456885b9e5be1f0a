"""`python -m mcpd`."""

from mcpd.cli import main

if __name__ == "__main__":
    main()

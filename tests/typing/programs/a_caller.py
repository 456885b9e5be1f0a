"""Typed results: what `returns=` names is what comes back."""

from dataclasses import dataclass
from typing import TypedDict

import msgspec
from pydantic import BaseModel

from mcpd import Client, ResultMismatch


@dataclass
class Forecast:
    high: float


class ForecastDict(TypedDict):
    high: float


class ForecastStruct(msgspec.Struct):
    high: float


class ForecastModel(BaseModel):
    high: float


async def ask(client: Client) -> None:
    try:
        one: Forecast = await client.call("forecast", city="Bern", returns=Forecast)
        many: list[Forecast] = await client.call("forecasts", {"cities": ["Bern"]}, returns=list[Forecast])
        as_dict: ForecastDict = await client.call("forecast", city="Bern", returns=ForecastDict, timeout=5)
        as_struct: ForecastStruct = await client.call("forecast", city="Bern", returns=ForecastStruct)
        as_model: ForecastModel = await client.call("forecast", city="Bern", returns=ForecastModel)
        by_city: dict[str, ForecastModel] = await client.call("all", returns=dict[str, ForecastModel])
        maybe: Forecast | None = await client.call("maybe", returns=Forecast | None)
        number = await client.call("number", returns=int)
        print(number.bit_length(), one.high, many[0].high, as_dict["high"], as_struct.high, as_model.high, by_city)
        print(maybe, (await client.call("anything", any=1))["whatever"])
    except ResultMismatch as mismatch:
        print(mismatch.tool, mismatch.problem)

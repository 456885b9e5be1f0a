"""Structured output: the return annotation is the output schema."""

import json
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from pydantic import BaseModel, Field

from mcpd import CallToolResult, Server, text

server = Server("Weather")

READINGS = {"London": 16.2, "Cairo": 34.1, "Reykjavik": 4.4}
UPSTREAM = {"London": '{"temperature": 16.2, "humidity": 0.83, "conditions": "Overcast"}'}


class WeatherData(BaseModel):
    """The weather."""

    temperature: float = Field(description="Degrees Celsius.")
    humidity: float = Field(description="Relative humidity, 0 to 1.")
    conditions: str


class Location(TypedDict):
    latitude: float
    longitude: float
    name: str


@dataclass
class Person:
    name: str
    age: int
    email: str | None = None


class UserProfile:
    name: str
    age: int
    email: str | None = None

    def __init__(self, name: str, age: int, email: str | None = None) -> None:
        self.name = name
        self.age = age
        self.email = email


class Station:
    def __init__(self, name: str, online: bool) -> None:
        self.name = name
        self.online = online

    def __str__(self) -> str:
        return f"{self.name}: {'online' if self.online else 'offline'}"


@server.tool
def get_weather(city: str) -> WeatherData:
    """Current weather for a city."""
    return WeatherData(temperature=READINGS[city], humidity=0.83, conditions="Overcast")


@server.tool
def get_upstream_weather(city: str) -> WeatherData:
    """Current weather for a city, from another service."""
    return WeatherData(**json.loads(UPSTREAM[city]))


@server.tool
def get_forecast(city: str, days: int) -> list[WeatherData]:
    """Daily forecast for a city."""
    return [WeatherData(temperature=READINGS[city] + day, humidity=0.83, conditions="Overcast") for day in range(days)]


@server.tool
def get_location(address: str) -> Location:
    """The location of an address."""
    return Location(latitude=51.5074, longitude=-0.1278, name=address)


@server.tool
def get_temperatures(cities: list[str]) -> dict[str, float]:
    """Current temperature for each city, in degrees Celsius."""
    return {city: READINGS[city] for city in cities}


@server.tool
def get_temperature(city: str) -> float:
    """Current temperature in a city."""
    return READINGS[city]


@server.tool
def list_cities() -> list[str]:
    """All cities."""
    return list(READINGS)


@server.tool
def get_person(user_id: str) -> Person:
    """A user's profile, as a dataclass."""
    return Person(name=user_id, age=30, email="alice@example.com")


@server.tool
def get_user(user_id: str) -> UserProfile:
    """A user's profile, as an ordinary class with annotations."""
    return UserProfile(name=user_id, age=30)


@server.tool
def get_station(name: str) -> str:
    """A weather station as text, because a class without annotations has no schema."""
    return str(Station(name=name, online=True))


@server.tool
def calculate_sum(a: int, b: int) -> Any:
    """Add two numbers. A result of type Any has no output schema."""
    return a + b


@server.tool
def custom_schema() -> Annotated[CallToolResult, WeatherData]:
    """A complete result, and the type of its data."""
    return CallToolResult(
        content=[text("It is overcast.")],
        structured_content={"temperature": 16.2, "humidity": 0.83, "conditions": "Overcast"},
        meta={"execution_time_ms": 145},
    )


@server.tool
def hidden_data() -> CallToolResult:
    """A result with metadata that only programs see."""
    return CallToolResult(content=[text("Response visible to the model")], meta={"hidden": "for applications"})


@server.tool(structured_output=False)
def weather_report(city: str) -> WeatherData:
    """The weather as text only, whatever the annotation."""
    return get_weather(city)


@server.tool
def anything(kind: str) -> dict[str, Any]:
    """An object with any members."""
    return {"kind": kind, "mean": 42.5}


if __name__ == "__main__":
    server.run(stdio=True)

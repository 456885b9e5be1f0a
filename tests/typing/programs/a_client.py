"""A client as programs write it: questions answered, content looked at by its type."""

import asyncio

from mcpd import (
    Callbacks,
    Client,
    CreateMessageParams,
    CreateMessageResult,
    ElicitFormParams,
    ElicitResult,
    LogMessageParams,
    RemoteError,
    Root,
    TextContent,
)


def fill_in(asked: ElicitFormParams) -> ElicitResult:
    print(asked.message, asked.requested_schema)
    return ElicitResult(action="accept", content={"really": True})


async def sample(asked: CreateMessageParams) -> CreateMessageResult:
    return CreateMessageResult(role="assistant", content=TextContent("yes"), model="m")


def log(message: LogMessageParams) -> None:
    print(message.level, message.data)


async def main() -> None:
    callbacks = Callbacks(elicit_form=fill_in, sample=sample, roots=lambda: [Root(uri="file:///")], log=log)
    async with Client("mcpd", callbacks=callbacks) as client:
        try:
            result = await client.call_tool("water", {"bed": "south"})
        except RemoteError as error:
            print(error)
            return
        for block in result.content:
            if block.type == "text":
                words: str = block.text
                print(words)
            elif block.type == "image" or block.type == "audio":
                data: bytes = block.data
                print(len(data), block.mime_type)


asyncio.run(main())

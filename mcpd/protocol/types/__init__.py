"""The newest vocabulary (2026-07-28) as msgspec structs; `mcpd.types` has all of them for users.

Handlers, the registry and the client use these types only. `mcpd.protocol.versions` turns them into older shapes by
blanking the fields that a version does not have. `base.py` has the parts that every message uses, `features.py` tools,
resources and prompts. `interaction.py`, which most servers never load, has completion, sampling, roots, elicitation and
multi round-trip requests.
"""

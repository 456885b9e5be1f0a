"""Skills: folders of instructions for models, which are resources with methods of their own (SEP-2640).

Start reading in `extension`, which is loaded with every server; `methods` answers clients, and `entries` is the wire
format. Sources of skills are in `mcpd.sources`.
"""

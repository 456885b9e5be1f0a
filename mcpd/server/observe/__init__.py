"""What is seen of a server from outside: metrics, status, traces, the wire log. Loaded only where one of them is on.

`meter.py` counts calls in the sessions themselves, `families.py` is what is counted as plain data, `exposition.py`
writes it; `outside.py` answers on a thread of its own, so that a server whose event loop hangs can still be asked.
"""

from __future__ import annotations

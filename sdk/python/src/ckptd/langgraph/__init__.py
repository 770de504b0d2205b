"""LangGraph on ckptd: a checkpointer that keeps the states of graphs in a daemon.

Install ``ckptd[langgraph]``. The README describes the options and the stored form.
"""

from ckptd.langgraph._saver import CkptdSaver
from ckptd.langgraph._states import BODY

__all__ = ["BODY", "CkptdSaver"]

"""The sync client. net.py is written by hand, the rest made from _async by tools/make_sync.py."""

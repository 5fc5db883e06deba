"""PD and TiKV over the embedded store: what `tidegate.tikv` speaks to, served on this machine.

peer.py   a PD and stores on ports of their own      pd_service.py   kv_service.py   feed_service.py
"""

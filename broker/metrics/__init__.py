"""Metrics: the content of `/metrics`, under the names that existing dashboards use.

    series.py     every series, declared once            readings.py   what each is at this moment
    exposition.py readings as text, in slices            loop_watch.py the event loop, watched from inside
    alerts.py     dashboard.py  reference.py             what `make docs` writes from the declarations

State is read at each scrape. Events that no state contains are counted where they happen (counters/latency.py,
counters/traffic.py).
"""

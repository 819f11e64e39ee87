"""Cross traffic of the elastic-tunnel experiments over loopback."""

from __future__ import annotations

import selectors
import socket

from chart_lab.experiments.itm_traffic import Cross


def test_connections_that_are_closed_while_they_could_send_do_no_harm() -> None:
    with selectors.DefaultSelector() as selector, socket.create_server(("127.0.0.1", 0), backlog=8) as listener:
        cross = Cross(selector, f"127.0.0.1:{listener.getsockname()[1]}", None, "reno")
        cross.set("3")
        accepted = [listener.accept()[0] for _ in range(3)]
        able = selector.select(5)
        assert len(able) >= 2
        cross.set("1")
        for key, _ in able:
            key.data()
        assert len(cross.open) == 1
        assert accepted[0].recv(100) == bytes(100)
        cross.set("0")
        for one in accepted:
            one.close()

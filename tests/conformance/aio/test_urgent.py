"""Urgent bytes to a transport, which passes over them."""

from __future__ import annotations

import socket

from conformance.aio.kit import HOST, Recorder, World, everywhere


def attached_at_both_ends(sock: socket.socket) -> bool:
    endpoint = getattr(sock, "_endpoint", None)
    return endpoint is not None and bool(endpoint.peer_consents)


@everywhere
async def test_an_urgent_byte_is_the_kernels_last_and_both_streams_have_ended(world: World) -> None:
    """The loop's transport passes over it and reads the doorbell byte behind it, while the kernel no longer tells
    whether it has counted the peer's FIN."""
    far = Recorder(keep_open=True)
    server = await world.server(lambda: far)
    with world.socket() as near:
        near.connect((HOST, world.port(server)))
        near.settimeout(0)
        near.send(b"ab!", socket.MSG_OOB)
        assert await world.until(lambda: bytes(far.data)) == b"ab"

        def answered() -> bool:
            far.transport.write(b".")
            try:
                return set(near.recv(100)) == {ord(".")} and (world.path == "kernel" or attached_at_both_ends(near))
            except BlockingIOError:
                return False

        await world.until(answered)
        far.transport.write_eof()

        def ended() -> bool:
            try:
                return not near.recv(100)
            except BlockingIOError:
                return False

        await world.until(ended)
        near.sendall(b"cd")
        near.shutdown(socket.SHUT_WR)
    await world.until(lambda: "eof" in far.events or far.lost)
    far.transport.abort()
    await world.until(lambda: far.lost)
    assert (bytes(far.data), far.error) == (b"abcd", None)

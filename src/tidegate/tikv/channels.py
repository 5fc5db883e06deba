"""gRPC channels to the members and stores of a cluster, one for each address that is reached."""

import grpc

from tidegate.tikv.address import ClusterAddress
from tidegate.tikv.rpc import CHANNEL_OPTIONS


class Channels:
    """Channels by what is advertised; they connect when they are first used."""

    def __init__(self, address: ClusterAddress) -> None:
        self.address = address
        self._credentials = address.credentials()
        self._open: dict[str, grpc.aio.Channel] = {}

    def to(self, advertised: str) -> grpc.aio.Channel:
        """Return the channel to an advertised address."""
        target = self.address.reachable(advertised)
        if target not in self._open:
            self._open[target] = (
                grpc.aio.secure_channel(target, self._credentials, CHANNEL_OPTIONS)
                if self._credentials
                else grpc.aio.insecure_channel(target, CHANNEL_OPTIONS)
            )
        return self._open[target]

    def shown(self, advertised: str) -> str:
        """Return an address for messages, with how it is reached, and the way out if that is not so."""
        target, plain = self.address.reachable(advertised), advertised.rpartition("//")[2]
        way = "" if target == plain else f", reached as {target}"
        return f"{plain}{way}; if that is no address of this network, set host-mapping={plain.rpartition(':')[0]}:HOST"

    async def close(self) -> None:
        """Close all of them."""
        for channel in self._open.values():
            await channel.close()
        self._open.clear()

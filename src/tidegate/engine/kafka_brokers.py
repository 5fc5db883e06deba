"""Connection options of Kafka clusters, for sources and sinks, and the librdkafka settings that they result in."""

from typing import Annotated, Final, Literal

import msgspec

from tidegate.model.option import Local, Option, Secret

SECTION: Final = "sink.kafka-config."


class KafkaClient(msgspec.Struct, frozen=True, kw_only=True):
    """Connection to the brokers, to read and to write."""

    bootstrap: tuple[str, ...]
    client_id: Annotated[str, Option("kafka-client-id", "client name in the broker's logs", key=SECTION)] = "tidegate"
    dial_timeout_ms: Annotated[
        int, Option("dial-timeout", "time to reach a broker", "duration", low=1, key=SECTION)
    ] = 10_000
    read_timeout_ms: Annotated[
        int, Option("read-timeout", "time for a broker's answer", "duration", low=1, key=SECTION)
    ] = 10_000
    enable_tls: Annotated[bool, Option("enable-tls", "use TLS; implied by ca, cert and key", key=SECTION)] = False
    ca: Annotated[str, Option("ca", "path of the CA certificate", local=Local.FILE, key=SECTION)] = ""
    cert: Annotated[str, Option("cert", "path of the client certificate", local=Local.FILE, key=SECTION)] = ""
    key: Annotated[str, Option("key", "path of the client key", local=Local.FILE, key=SECTION)] = ""
    insecure_skip_verify: Annotated[
        bool,
        Option("insecure-skip-verify", "TLS without checking the broker's certificate and name", key=SECTION),
    ] = False
    sasl_user: Annotated[str, Option("sasl-user", "SASL user", key=SECTION)] = ""
    sasl_password: Annotated[Secret, Option("sasl-password", "SASL password", key=SECTION)] = Secret()
    sasl_mechanism: Annotated[
        Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", ""],
        Option(
            "sasl-mechanism",
            "`PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`",
            default="PLAIN with a user",
            choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
            unsupported=("GSSAPI", "OAUTHBEARER"),
            key=SECTION,
        ),
    ] = ""
    ignored: tuple[str, ...] = ()
    """Parameters that were accepted without effect."""

    def warnings(self) -> tuple[str, ...]:
        """Return warnings about a connection that others may read or answer."""
        host, *_ = self.bootstrap
        if self.sasl_mechanism == "PLAIN" and not self.enable_tls:
            return (f"{host}: the password of sasl-user is sent to the broker in clear; use enable-tls=true, or SCRAM",)
        if self.insecure_skip_verify and self.enable_tls:
            return (f"{host}: insecure-skip-verify accepts any server as the broker; set its authority in ca",)
        return ()

    def client_config(self) -> dict[str, str]:
        """Return the connection as librdkafka's configuration keys."""
        config = {
            "bootstrap.servers": ",".join(self.bootstrap),
            "client.id": self.client_id,
            "socket.connection.setup.timeout.ms": str(min(max(self.dial_timeout_ms, 1000), 2**31 - 1)),
            "socket.timeout.ms": str(min(max(self.read_timeout_ms, 10), 300_000)),
            "security.protocol": ("SASL_" if self.sasl_mechanism else "") + ("SSL" if self.enable_tls else "PLAINTEXT"),
        }
        files = {"ssl.ca.location": self.ca, "ssl.certificate.location": self.cert, "ssl.key.location": self.key}
        config |= {key: path for key, path in files.items() if path}
        if self.enable_tls and self.insecure_skip_verify:
            config |= {"enable.ssl.certificate.verification": "false", "ssl.endpoint.identification.algorithm": "none"}
        if self.sasl_mechanism:
            config |= {
                "sasl.mechanism": self.sasl_mechanism,
                "sasl.username": self.sasl_user,
                "sasl.password": str(self.sasl_password),
            }
        return config

"""`LogSource`: the log source of a Sigma rule, and the names of its attributes.

Two tables hold the log sources of Windows: a category is an event of Sysmon or PowerShell, a
service is a channel of the event log. Both constraints apply in addition to the rule's own. Other
log sources add no constraint: subscribers must then select the events themselves, and a note in the
rule states this.

Source: Sigma specification 2.1.0, appendix taxonomy (log sources of Windows; field names).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from contrada.integrations.dialects.sigma.sigma_refusals import shorten
from contrada.integrations.dialects.sigma.sigma_values import equal
from contrada.model.algebra.expression import And, Formula, Member
from contrada.model.algebra.value_set import union
from contrada.model.rule import Note

_SYSMON: Final = ("Microsoft-Windows-Sysmon/Operational",)
_POWERSHELL: Final = ("Microsoft-Windows-PowerShell/Operational", "PowerShellCore/Operational")
_POWERSHELL_CLASSIC: Final = ("Windows PowerShell",)
_SERVICE_BUS: Final = (
    "Microsoft-ServiceBus-Client/Operational",
    "Microsoft-ServiceBus-Client/Admin",
)

CATEGORIES: Final[Mapping[str, tuple[tuple[str, ...], tuple[int, ...]]]] = {
    "process_creation": (_SYSMON, (1,)),
    "file_change": (_SYSMON, (2,)),
    "network_connection": (_SYSMON, (3,)),
    "sysmon_status": (_SYSMON, (4, 16)),
    "process_termination": (_SYSMON, (5,)),
    "driver_load": (_SYSMON, (6,)),
    "image_load": (_SYSMON, (7,)),
    "create_remote_thread": (_SYSMON, (8,)),
    "raw_access_thread": (_SYSMON, (9,)),
    "process_access": (_SYSMON, (10,)),
    "file_event": (_SYSMON, (11,)),
    "registry_event": (_SYSMON, (12, 13, 14)),
    "registry_add": (_SYSMON, (12,)),
    "registry_delete": (_SYSMON, (12,)),
    "registry_set": (_SYSMON, (13,)),
    "registry_rename": (_SYSMON, (14,)),
    "create_stream_hash": (_SYSMON, (15,)),
    "pipe_created": (_SYSMON, (17, 18)),
    "wmi_event": (_SYSMON, (19, 20, 21)),
    "dns_query": (_SYSMON, (22,)),
    "file_delete": (_SYSMON, (23,)),
    "clipboard_capture": (_SYSMON, (24,)),
    "process_tampering": (_SYSMON, (25,)),
    "file_delete_detected": (_SYSMON, (26,)),
    "file_block_executable": (_SYSMON, (27,)),
    "file_block_shredding": (_SYSMON, (28,)),
    "file_executable_detected": (_SYSMON, (29,)),
    "sysmon_error": (_SYSMON, (255,)),
    "ps_classic_start": (_POWERSHELL_CLASSIC, (400,)),
    "ps_classic_provider_start": (_POWERSHELL_CLASSIC, (600,)),
    "ps_classic_script": (_POWERSHELL_CLASSIC, (800,)),
    "ps_module": (_POWERSHELL, (4103,)),
    "ps_script": (_POWERSHELL, (4104,)),
}
"""The channels of each Windows category, one of which an event has, and its numbers."""

SERVICES: Final[Mapping[str, tuple[str, ...]]] = {
    "application": ("Application",),
    "application-experience": (
        "Microsoft-Windows-Application-Experience/Program-Telemetry",
        "Microsoft-Windows-Application-Experience/Program-Compatibility-Assistant",
    ),
    "applocker": (
        "Microsoft-Windows-AppLocker/MSI and Script",
        "Microsoft-Windows-AppLocker/EXE and DLL",
        "Microsoft-Windows-AppLocker/Packaged app-Deployment",
        "Microsoft-Windows-AppLocker/Packaged app-Execution",
    ),
    "appmodel-runtime": ("Microsoft-Windows-AppModel-Runtime/Admin",),
    "appxdeployment-server": ("Microsoft-Windows-AppXDeploymentServer/Operational",),
    "appxpackaging-om": ("Microsoft-Windows-AppxPackaging/Operational",),
    "bitlocker": ("Microsoft-Windows-BitLocker/BitLocker Management",),
    "bits-client": ("Microsoft-Windows-Bits-Client/Operational",),
    "capi2": ("Microsoft-Windows-CAPI2/Operational",),
    "certificateservicesclient-lifecycle-system": (
        "Microsoft-Windows-CertificateServicesClient-Lifecycle-System/Operational",
    ),
    "codeintegrity-operational": ("Microsoft-Windows-CodeIntegrity/Operational",),
    "dhcp": ("Microsoft-Windows-DHCP-Server/Operational",),
    "diagnosis-scripted": ("Microsoft-Windows-Diagnosis-Scripted/Operational",),
    "dns-client": ("Microsoft-Windows-DNS Client Events/Operational",),
    "dns-server": ("DNS Server",),
    "dns-server-analytic": ("Microsoft-Windows-DNS-Server/Analytical",),
    "dns-server-audit": ("Microsoft-Windows-DNS-Server/Audit",),
    "driver-framework": ("Microsoft-Windows-DriverFrameworks-UserMode/Operational",),
    "firewall-as": ("Microsoft-Windows-Windows Firewall With Advanced Security/Firewall",),
    "hyper-v-worker": ("Microsoft-Windows-Hyper-V-Worker",),
    "iis-configuration": ("Microsoft-IIS-Configuration/Operational",),
    "kernel-event-tracing": ("Microsoft-Windows-Kernel-EventTracing",),
    "kernel-shimengine": (
        "Microsoft-Windows-Kernel-ShimEngine/Operational",
        "Microsoft-Windows-Kernel-ShimEngine/Diagnostic",
    ),
    "ldap": ("Microsoft-Windows-LDAP-Client/Debug",),
    "lsa-server": ("Microsoft-Windows-LSA/Operational",),
    "msexchange-management": ("MSExchange Management",),
    "ntfs": ("Microsoft-Windows-Ntfs/Operational",),
    "ntlm": ("Microsoft-Windows-NTLM/Operational",),
    "openssh": ("OpenSSH/Operational",),
    "powershell": _POWERSHELL,
    "powershell-classic": _POWERSHELL_CLASSIC,
    "printservice-admin": ("Microsoft-Windows-PrintService/Admin",),
    "printservice-operational": ("Microsoft-Windows-PrintService/Operational",),
    "security": ("Security",),
    "security-mitigations": (
        "Microsoft-Windows-Security-Mitigations/Kernel Mode",
        "Microsoft-Windows-Security-Mitigations/User Mode",
    ),
    "sense": ("Microsoft-Windows-SENSE/Operational",),
    "microsoft-servicebus-client": _SERVICE_BUS,
    "servicebus-client": _SERVICE_BUS,
    "shell-core": ("Microsoft-Windows-Shell-Core/Operational",),
    "smbclient-security": ("Microsoft-Windows-SmbClient/Security",),
    "smbserver-connectivity": ("Microsoft-Windows-SMBServer/Connectivity",),
    "sysmon": _SYSMON,
    "system": ("System",),
    "taskscheduler": ("Microsoft-Windows-TaskScheduler/Operational",),
    "terminalservices-localsessionmanager": (
        "Microsoft-Windows-TerminalServices-LocalSessionManager/Operational",
    ),
    "vhdmp": ("Microsoft-Windows-VHDMP/Operational",),
    "windefend": ("Microsoft-Windows-Windows Defender/Operational",),
    "wmi": ("Microsoft-Windows-WMI-Activity/Operational",),
}
"""The channels of each Windows service, one of which an event has."""

FIELDS: Final[Mapping[str, str]] = {"Provider_Name": "SourceName"}
"""Fields of Windows rules that events have under another name."""

UNKNOWN: Final = "a log source that constrains nothing"
"""The note of a rule if its log source, or a part of it, is in no table."""


@dataclass(frozen=True, slots=True)
class LogSource:
    """The parts of a log source in small letters, empty if not given."""

    product: str = ""
    category: str = ""
    service: str = ""

    @classmethod
    def of(cls, given: Mapping[Any, Any]) -> "LogSource":
        """Returns the log source of a rule. Its other members are for people."""
        named = (given.get(part) for part in ("product", "category", "service"))
        return cls(*("" if part is None else shorten(str(part)).lower() for part in named))

    @property
    def is_windows(self) -> bool:
        """Whether the tables apply to it."""
        return self.product == "windows"

    def constraints(self) -> Formula:
        """Returns the constraints on its events."""
        parts: list[Formula] = []
        if self.is_windows and self.category in CATEGORIES:
            channels, numbers = CATEGORIES[self.category]
            parts = [_one_of("Channel", channels), _one_of("EventID", numbers)]
        if self.is_windows and self.service in SERVICES:
            parts.append(_one_of("Channel", SERVICES[self.service]))
        return And(tuple(parts))

    def notes(self) -> tuple[Note, ...]:
        """Returns notes on the parts of a log source that constrain nothing."""
        is_known = self.is_windows and bool(self.category or self.service)
        idle = {
            "product": "" if is_known else self.product,
            "category": "" if is_known and self.category in CATEGORIES else self.category,
            "service": "" if is_known and self.service in SERVICES else self.service,
        }
        parts = [f"{name} {part}" for name, part in idle.items() if part]
        if is_known and not parts:
            return ()
        return (Note(UNKNOWN, ", ".join(parts) or "none is named"),)

    def attribute(self, field: str) -> str:
        """Returns the attribute of a rule's field."""
        return FIELDS.get(field, field) if self.is_windows else field


def _one_of(name: str, values: Iterable[str | int]) -> Member:
    return Member(name, union(equal(value) for value in values))

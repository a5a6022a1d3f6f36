"""A Slurm cluster of one node on this machine: Debian's slurm-wlm and munge, started as root, without systemd."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue")

_CONF = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=short Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str | None:
    """Return why no cluster can be started here, None if it can."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing:
        return f"Slurm is not installed (no {', '.join(missing)}): apt-get install slurm-wlm munge"
    return None if os.geteuid() == 0 else "Slurm's daemons are started by root only"


@contextlib.contextmanager
def running(folder: Path):
    """Start the cluster, wait until it runs a job, and stop it; SLURM_CONF leads all commands to it meanwhile."""
    conf = folder / "slurm.conf"
    (folder / "state").mkdir()
    (folder / "spool").mkdir()
    conf.write_text(_CONF.format(host=socket.gethostname(), folder=folder, ports=_ports(2), cpus=os.cpu_count()))
    before = {name: os.environ.get(name) for name in ("SLURM_CONF", "PATH")}
    os.environ.update(SLURM_CONF=str(conf), PATH=os.environ["PATH"] + ":/usr/sbin:/sbin")
    started = []
    try:
        if subprocess.run(["munge", "-n"], capture_output=True).returncode:
            started.append(_munged(folder))
        started += [_quiet([name, "-D", "-f", str(conf)]) for name in ("slurmctld", "slurmd")]
        _wait_for(lambda: subprocess.run(["srun", "-t", "1", "true"], capture_output=True, timeout=30).returncode == 0)
        yield
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def _munged(folder: Path) -> subprocess.Popen:
    run = Path("/run/munge")
    run.mkdir(exist_ok=True)
    shutil.chown(run, "munge", "munge")
    process = _quiet(["runuser", "-u", "munge", "--", "munged", "--foreground"])
    _wait_for(lambda: subprocess.run(["munge", "-n"], capture_output=True).returncode == 0)
    return process


def _quiet(command: list[str]) -> subprocess.Popen:
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    found = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return found


def _wait_for(good, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            if good():
                return
        if time.monotonic() > end:
            raise TimeoutError("the cluster did not start")
        time.sleep(0.5)

"""A Spark standalone cluster on loopback: a master and workers in separate processes."""

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pyspark

from partage.spark import prepare_java

from .group_state import PATIENCE_S, wait_until

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
#: Options of a JVM that lives for seconds.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Standalone:
    """The cluster; ``conf`` gives an application one executor on each worker.

    Each worker has one of ``hosts``, which are addresses of this machine.
    """

    conf = {
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": QUICK_START,
    }

    def __init__(self, at, workers=2, hosts=("127.0.0.1",)):
        self._at = at
        self._workers = {f"worker{n + 1}": hosts[n % len(hosts)] for n in range(workers)}
        self._processes = []
        self.url = ""

    def __enter__(self):
        prepare_java()
        self._at.mkdir()
        try:
            self._run("master", MASTER, "--port", "0")
            self.url = wait_until(
                lambda: self._said("master", r"Starting Spark master at (spark://\S+)")
            )
            for name, host in self._workers.items():
                work = ["--work-dir", str(self._at / name), "--cores", "1", "--memory", "1g"]
                self._run(name, WORKER, *work, self.url, host=host)
            for name in self._workers:
                wait_until(lambda name=name: self._said(name, "(Successfully registered)"))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error):
        for process in self._processes:
            with contextlib.suppress(psutil.NoSuchProcess):  # it ended and failed the test
                for child in psutil.Process(process.pid).children(recursive=True):
                    with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
                        child.kill()
            process.kill()
            process.wait(60)

    def executors(self):
        """Return the executor processes."""
        found = []
        for process in self._processes:
            for child in psutil.Process(process.pid).children():
                with contextlib.suppress(psutil.NoSuchProcess):  # ended meanwhile, or is a zombie
                    if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline()):
                        found.append(child)
        return found

    def kill_executor(self, running=lambda: None, patience_s=PATIENCE_S, *, with_workers=False):
        """Kill an executor and wait for its end.

        Args:
            running: Returns process ids. The executor must have started one of them, unless this
                returns None.
            patience_s: The longest wait for such an executor.
            with_workers: Also kill the Python processes of the executor, as if its machine failed.
                Otherwise they notice the end of the executor.
        """

        def found():
            pids = running()
            for executor in self.executors():
                with contextlib.suppress(psutil.NoSuchProcess):
                    workers = executor.children(recursive=True)
                    if pids is None or pids & {worker.pid for worker in workers}:
                        return executor
            return None

        executor = wait_until(found, "an executor", patience_s)
        executor.suspend()  # no process notices the end of another one
        killed = [executor]
        if with_workers:
            killed += executor.children(recursive=True)
        for process in killed:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
        for process in killed:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(killed, 60)

    def _run(self, name, kind, *arguments, host="127.0.0.1"):
        command = [SPARK_CLASS, kind, "--host", host, "--webui-port", "0", *arguments]
        environment = {
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            # The REST server of a master has a fixed port.
            "SPARK_DAEMON_JAVA_OPTS": f"{QUICK_START} -Dspark.master.rest.enabled=false",
            "PYSPARK_PYTHON": sys.executable,
        }
        with (self._at / name).with_suffix(".log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        self._processes.append(process)

    def _said(self, name, pattern):
        assert all(process.poll() is None for process in self._processes), self._log(name)
        found = re.search(pattern, self._log(name))
        return found and found[1]

    def _log(self, name):
        return (self._at / name).with_suffix(".log").read_text()

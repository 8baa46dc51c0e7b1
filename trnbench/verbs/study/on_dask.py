"""The workers of a Dask cluster as those of a study; that one of them or all are gone is a line."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future
from typing import Any

from trnbench.errors import EnvironmentFault
from trnbench.facts.processes.workers import WorkerLost


@contextlib.contextmanager
def on_dask(scheduler: str, losses: int) -> Iterator[tuple[Executor, int]]:
    """Give the workers of the cluster at an address, and how many calls they answer at a time.

    A call is lost with its worker so many times before it fails.
    """
    try:
        from distributed import Client
        from distributed.comm.core import CommClosedError
        from distributed.scheduler import KilledWorker
    except ImportError:
        raise EnvironmentFault(
            "--scheduler needs Dask", hint="pip install 'trnbench[cluster]'"
        ) from None
    connect: Any = Client
    gone = EnvironmentFault(
        f"the Dask scheduler at {scheduler} is gone", hint="the same command goes on from here"
    )
    with _quiet():
        try:
            client = connect(scheduler, timeout="5s", set_as_default=False)
        except (OSError, ValueError) as error:
            raise EnvironmentFault(f"no Dask scheduler at {scheduler}: {error}") from None
        try:
            workers = sum(client.nthreads().values())
            if not workers:
                raise EnvironmentFault(f"the Dask scheduler at {scheduler} has no workers")
            executor = client.get_executor(pure=False, retries=losses)
            yield _DaskWorkers(executor, KilledWorker), workers
            executor.shutdown(wait=False)
        except (CancelledError, CommClosedError) as error:
            raise gone from error
        finally:
            with contextlib.suppress(CancelledError, CommClosedError, OSError, RuntimeError):
                client.close(timeout=1)


class _DaskWorkers(Executor):
    """An executor of Dask's whose calls are lost as those of this machine's workers are."""

    def __init__(self, executor: Any, killed: type[Exception]) -> None:  # noqa: ANN401
        self._executor = executor
        self._killed = killed

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:  # noqa: ANN401
        running: Future[Any] = self._executor.submit(fn, *args, **kwargs)
        result: Future[Any] = Future()
        result.set_running_or_notify_cancel()
        running.add_done_callback(lambda done: self._tell(done, result))
        return result

    def _tell(self, done: Future[Any], result: Future[Any]) -> None:
        if done.cancelled():
            result.set_exception(CancelledError())
        elif (error := done.exception()) is None:
            result.set_result(done.result())
        elif isinstance(error, self._killed):
            result.set_exception(WorkerLost("was lost by the Dask scheduler"))
        else:
            result.set_exception(error)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Log nothing: Dask tells of a lost connection with pages of tracebacks."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)

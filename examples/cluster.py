"""
Training on a cluster
=====================

`ConsensusSVC` trains a `MulticlassSVC` on partitions that stay on the workers of a Dask cluster.
Workers exchange only weight vectors, and the certificate covers the whole problem.
"""

import matplotlib.pyplot as plt
from dask.distributed import Client, LocalCluster
from sklearn.datasets import load_digits

from dualgap import MulticlassSVC
from dualgap.distributed import ConsensusSVC

# %%
# In this example the workers are threads of this process. Use ``Client("tcp://scheduler:8786")``
# for a cluster of machines.

X, y = load_digits(return_X_y=True)
X = X / 16
with (
    LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster,
    Client(cluster) as client,
):
    fits = {}
    for partitions in (2, 8):
        svm = ConsensusSVC(C=0.05, client=client, n_partitions=partitions, tol=1e-2, random_state=0)
        fits[partitions] = svm.fit(X, y)

alone = MulticlassSVC(C=0.05, tol=1e-2, random_state=0).fit(X, y)
print(f"on one machine: objective {alone.objective_:.4f} after {alone.n_iter_} passes")
for partitions, svm in fits.items():
    print(f"{partitions} partitions: {svm.objective_:.4f} after {svm.n_iter_} rounds, ", end="")
    print(f"gap {svm.relative_gap_:.1e} of the objective")

# %%
# The number of rounds grows with the number of partitions, and each round takes several passes over
# the rows. Therefore, use consensus training only for data that do not fit on one machine. The plot
# shows the objective and its lower bound after each round.

figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
for number, (partitions, svm) in enumerate(fits.items()):
    history = svm.history_
    axis.plot(
        history["epoch"], history["objective"], color=f"C{number}", label=f"{partitions} partitions"
    )
    axis.plot(history["epoch"], history["dual_objective"], "--", color=f"C{number}")
axis.set(xlabel="rounds", ylabel="objective and lower bound (dashed)", ylim=(0, 0.6))
axis.legend()
plt.show()

# %%
# Pass files that every worker can read as a list of paths:
# ``svm.fit(["part-0.parquet", "part-1.parquet"], y="label")``. Dask arrays and dataframes can be
# passed directly. ``checkpoint`` saves the state in a folder, and ``resume`` continues from it: see
# the guide.

"""
Recommending
============

Fit a model to ratings, predict each level, recommend lists of items, and add users after the fit.
"""

import matplotlib.pyplot as plt
import numpy as np

from dualgap.datasets import synthetic_ratings
from dualgap.recommend import OrdinalRecommender

# %%
# The ratings are generated numbers from 1 to 5; ``fetch_movielens("100k")`` downloads real ratings.

ratings = synthetic_ratings(20_000, 400, 150, random_state=0)
train, test = ratings[:15_000], ratings[15_000:]
print(train.head(3))

recommender = OrdinalRecommender(random_state=0).fit(train)
print({name: round(value, 3) for name, value in recommender.evaluate(test).items()})

# %%
# A prediction is a distribution over the levels, because every threshold between two levels has a
# separate output:

users, items = test["user"], test["item"]
print(recommender.predict_proba(users[:3], items[:3]).round(2))
print(recommender.predict(users[:3], items[:3]).round(2))

# %%
# There are two ways to rank. The expected rating favours items that few users know.
# ``rank_by="like"`` ranks by the chance that the user chooses and likes an item, which suits a list
# of suggestions. Items that the user has rated are left out.

some = train["user"].unique()[:2]
print(recommender.recommend(some, n=3, rank_by="like"))
print(recommender.similar_items([int(train["item"].mode()[0])], n=3))

# %%
# A new user needs no refit, only some ratings:

newcomer = ([100_000] * 3, train["item"].unique()[:3], [5.0, 4.0, 1.0])
print(recommender.recommend(ratings=newcomer, n=3, rank_by="like"))

# %%
# Are the probabilities calibrated? For each level, the picture compares the predicted probability
# of at most this rating with the observed share.

levels = recommender.levels_
probabilities = recommender.predict_proba(users, items).cumsum(axis=1)
figure, axis = plt.subplots(figsize=(5, 5), layout="constrained")
for number, level in enumerate(levels[:-1]):
    at_most = (test["rating"] <= level).to_numpy()
    groups = np.array_split(np.argsort(probabilities[:, number]), 10)
    said = [probabilities[group, number].mean() for group in groups]
    axis.plot(
        said, [at_most[group].mean() for group in groups], "o-", label=f"rating at most {level:g}"
    )
axis.plot([0, 1], [0, 1], color="grey", linewidth=1)
axis.set(xlabel="probability", ylabel="share of the test ratings", title="Calibration")
axis.legend()
plt.show()

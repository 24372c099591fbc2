// Order of search results: guides first, benchmarks, experiments and the changelog last.
var Scorer = {
  score: ([page, title, anchor, description, score, file, kind]) => {
    // A member whose class contains the query: "NER" in "FactorizationMachineRegressor.fit".
    const query = (new URLSearchParams(location.search).get("q") ?? "").toLowerCase();
    if (kind === "object" && !title.toLowerCase().split(".").pop().includes(query)) score -= 20;
    if (/^(changelog|experiments|contributing|benchmarks\/)/.test(page)) return score - 20;
    return page.includes("/") ? score : score + 10;
  },
  objNameMatch: 11,
  // A name that only contains the query: "NER" in "FactorizationMachineRegressor".
  objPartialMatch: -15,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  // A word that only contains the query: "NER" in "owner".
  partialTerm: -15,
};

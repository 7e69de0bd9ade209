"""A model of grants and revokes, written from the manual: one entitlement, one change after the other."""

import collections

from .entitlements import GRANTS, REVOKES

CONFLICT, MISSING = (409, "ENTITLEMENT_STATE_CONFLICT"), (404, "ENTITLEMENT_NOT_FOUND")


class Model:
    def __init__(self):
        self.sources = {}  # (kind, id) -> whether it is active
        self.version = 0
        self.step = 0

    @property
    def status(self):
        return "ACTIVE" if self.version % 2 else "REVOKED"

    def refusal(self, target, body):
        """Returns (status, code) of the refusal that this change would get now, or None."""
        purchase = body.get("purchase_id")
        source = ("purchase", purchase) if purchase else ("reason", body["reason"])
        active = self.sources.get(source)
        if target == GRANTS:
            return CONFLICT if active or (purchase and active is False) else None
        if self.version == 0:
            return MISSING
        if self.status == "REVOKED":
            return CONFLICT
        if purchase and not active:
            return MISSING if active is None else CONFLICT
        return None

    def apply(self, target, body):
        assert self.refusal(target, body) is None, (target, body, vars(self))
        purchase = body.get("purchase_id")
        if target == GRANTS:
            self.sources["purchase" if purchase else "reason", purchase or body["reason"]] = True
        else:
            ended = [("purchase", purchase)] if purchase else list(self.sources)
            self.sources.update(dict.fromkeys(ended, False))
        turned = any(self.sources.values()) != (self.status == "ACTIVE")
        self.version, self.step = (self.version + 1, 0) if turned else (self.version, self.step + 1)


def assert_explained(answers, lines):
    """Checks that the audit, in its order, explains every answer: each success is a line, and each refusal fits some
    moment of the version that it shows. Returns the model after the last line.

    `answers` are (target, body, answer), `lines` the rows of the audit in order."""
    model, done = Model(), collections.Counter()
    unexplained = [one for one in answers if one[2].status != 200]

    def is_refused_now(target, body, answer):
        shown = answer.json().get("entitlement", {"version": model.version})
        return shown["version"] == model.version and model.refusal(target, body) == (answer.status, answer.code)

    def explain():
        unexplained[:] = [one for one in unexplained if not is_refused_now(*one)]

    explain()
    for line in lines:
        target = {"GRANTED": GRANTS, "REVOKED": REVOKES}[line["action"]]
        model.apply(target, {"reason": line["reason"], "purchase_id": line["purchase_id"]})
        assert (line["version"], line["step"]) == (model.version, model.step)
        assert (line["event_id"] is None) == (model.step > 0)
        done[target, line["reason"], line["purchase_id"], model.version, model.status] += 1
        explain()
    assert unexplained == []
    assert done == collections.Counter(
        (target, body["reason"], body.get("purchase_id"), answer.json()["version"], answer.json()["status"])
        for target, body, answer in answers if answer.status == 200)
    return model

-- Events that an operator has discarded stay for ever. An erasure looks among them for those about the person.
CREATE INDEX outbox_events_discarded ON outbox_events (event_id) WHERE status = 'DISCARDED';

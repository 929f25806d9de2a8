-- state.sqlite, since version 4: which records recall was ever approved for, without a look at the rest of history.
CREATE INDEX history_recall ON history (partition, record_id, sequence) WHERE operation = 'recall';

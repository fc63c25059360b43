"""The queue: topics, submitter, scheduler, agent, results, dead letters."""

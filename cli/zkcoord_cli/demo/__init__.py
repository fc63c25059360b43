"""The main job: language-model tasks over real text, with a kill or two on the way."""

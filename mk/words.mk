# The words that people read: one term for each thing (docs/glossary.md), none of tools/banned-words.yaml.
LINT += lint-words

.PHONY: lint-words
lint-words: python
	@$(PYTHON) tools/words

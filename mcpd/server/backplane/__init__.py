"""What several processes that serve the same clients have to share. `base` says what is needed; `memory` has it."""

"""The paper's theory as experiments; `docs/theory.md` shows what they found."""

"""Where gradients enter their updates in a step that was traced on one device."""

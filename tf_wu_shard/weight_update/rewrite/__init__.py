"""From a graph and a plan to the graph that follows the plan, checked."""

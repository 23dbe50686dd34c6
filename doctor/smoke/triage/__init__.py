"""Large fleets: cells of hosts run at the same time and are re-paired in rounds; what fails is left out."""

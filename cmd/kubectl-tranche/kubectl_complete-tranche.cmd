@rem kubectl runs this program to complete `kubectl tranche`. Put it into a folder of PATH.
@kubectl-tranche.exe __complete %*

// Package gitops holds the manifests of deployments/gitops against the definitions of Argo
// CD and Flux: fields that these do not know are errors. It is a Go module of its own, so
// that Tranche does not depend on them.
package gitops

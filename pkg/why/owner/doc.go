// Package owner explains why the pods of a job or another owner do not run: it is suspended, Kueue
// does not admit it, its pods are refused, or they wait. It also explains a ResourceClaim.
//
// facts.go reduces each kind of owner to what matters. pods.go chooses the pods that pkg/why
// explains: one for each way in which they wait.
//
// Everything is pure.
package owner

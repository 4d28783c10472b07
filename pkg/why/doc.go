// Package why explains why a pod does not run: what it requests, and for every node with GPUs
// what prevents it.
//
// Selectors are evaluated by the scheduler's CEL, and the scheduler's allocator decides whether a
// pod fits on a node. This package adds the reason, from counters, taints and holders.
//
// Explain and ExplainAbsence make an Explanation from API objects, which the caller reads.
// pkg/picture draws it. For the controller, a Wish is what many pods ask for, and a Site judges
// a node for many wishes; Common and Note give the answer in a word and a sentence.
package why

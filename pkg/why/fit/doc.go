// Package fit evaluates nodes for a pod: whether its devices fit on a node, and if not, why.
//
// The scheduler's CEL evaluates selectors, and the scheduler's allocator decides whether devices fit.
// This package adds the reason, from counters, taints and holders.
//
//   - verdict.go: the verdicts, with the message, event and remedy of each; result.go: a node's result;
//     cause.go: what a node lacks, with the values that exist; tally.go: causes of many nodes;
//     remedies.go: what users can do; way.go: which holders would make room
//   - shared.go: what of a demand this driver can serve
//   - model.go: the cluster; node.go: a node; allocate.go: the scheduler's allocator
//   - supply.go: a node's devices for a request, with shares.go for shared devices and modes.go for
//     AMD's modes
//   - exclude.go: what keeps a pod off a node besides devices; requests.go: requests of other pods;
//     switches.go: switches of profiles
//
// Everything is pure.
package fit

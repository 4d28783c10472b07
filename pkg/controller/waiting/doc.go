// Package waiting writes events on pods that stay Pending because of their claims. An event says why the
// pod waits, and is written again only when the answer changes.
//
// One worker runs rounds. A round finds out what the pods demand that have waited for long enough, judges
// nodes for these demands, and writes events. Pods with the same demand share its verdicts. A node has a
// verdict for each demand until something about the node changes: its claims, slices, taints or switch.
// Nodes are not judged for pods that have room elsewhere.
//
// The rest of the controller is more important. So there are few demands in all and for each namespace,
// one that takes long is backed off, judging takes half of a processor at most, one limiter bounds the
// calls to the API server, and the namespaces take turns within a round.
//
// explainer.go runs the rounds, pods.go finds what pods demand, demands.go has the verdicts, nodes.go judges
// nodes, events.go writes events, changes.go collects what informers report, and setup.go adds everything to
// a manager. pkg/why decides.
package waiting

package cluster

import (
	"time"

	"github.com/tranche-dev/tranche/api/v1alpha1"
)

// Switches is a node's history. Its JSON form is what `kubectl tranche switches
// NODE -o json` prints.
type Switches struct {
	Node string `json:"node"`
	// Now is how far the node is.
	Now Progress `json:"now"`
	// History has the switches that are over, the newest first.
	History []Switch `json:"history"`
}

// Switch is one that is over.
type Switch struct {
	From   string `json:"from,omitempty"`
	To     string `json:"to,omitempty"`
	Result string `json:"result"`
	// Reason and Message say why it did not succeed.
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Started time.Time `json:"started"`
	// Seconds is how long it took, from the first taint on.
	Seconds float64 `json:"seconds"`
	// Evicted counts the pods that were asked to leave.
	Evicted int32 `json:"evicted"`
}

// SwitchesOf is the history of a node.
func SwitchesOf(n *v1alpha1.GPUNode) Switches {
	out := Switches{Node: n.Name, Now: ProgressOf(n), History: []Switch{}}
	for i := range n.Status.History {
		r := &n.Status.History[i]
		out.History = append(out.History, Switch{
			From: r.From, To: r.To, Result: r.Result, Reason: r.Reason, Message: r.Message,
			Started: r.Started.UTC(), Seconds: r.Duration.Seconds(), Evicted: r.Evicted,
		})
	}
	return out
}

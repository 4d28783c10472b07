package cluster

import (
	"time"

	"github.com/tranche-dev/tranche/api/v1beta1"
)

// Switches is the history of a node. Its JSON form is what `kubectl tranche switches
// NODE -o json` prints.
type Switches struct {
	Node string `json:"node"`
	// Now is the current progress.
	Now Progress `json:"now"`
	// History has the finished switches, the newest first.
	History []Switch `json:"history"`
}

// Switch is a finished switch.
type Switch struct {
	From   string `json:"from,omitempty"`
	To     string `json:"to,omitempty"`
	Result string `json:"result"`
	// Reason and Message say why it failed.
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Started time.Time `json:"started"`
	// Seconds is its duration from the first taint.
	Seconds float64 `json:"seconds"`
	// Evicted counts the evicted pods.
	Evicted int32 `json:"evicted"`
}

// SwitchesOf returns the history of a node.
func SwitchesOf(n *v1beta1.GPUNode) Switches {
	out := Switches{Node: n.Name, Now: ProgressOf(n), History: []Switch{}}
	for i := range n.Status.History {
		r := &n.Status.History[i]
		out.History = append(out.History, Switch{
			From: r.FromProfileName, To: r.ToProfileName, Result: string(r.Result), Reason: r.Reason, Message: r.Message,
			Started: r.StartTime.UTC(), Seconds: r.Duration.Seconds(), Evicted: r.EvictedPodCount,
		})
	}
	return out
}

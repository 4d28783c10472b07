package progress

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tranche-dev/tranche/api/v1alpha1"
)

// Switches is a node's history. Its JSON form is what `kubectl tranche switches
// NODE -o json` prints.
type Switches struct {
	Node string `json:"node"`
	// Now is how far the node is.
	Now Node `json:"now"`
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
	out := Switches{Node: n.Name, Now: Of(n), History: []Switch{}}
	for i := range n.Status.History {
		r := &n.Status.History[i]
		out.History = append(out.History, Switch{
			From: r.From, To: r.To, Result: r.Result, Reason: r.Reason, Message: r.Message,
			Started: r.Started.UTC(), Seconds: r.Duration.Seconds(), Evicted: r.Evicted,
		})
	}
	return out
}

// DrawSwitches writes a history as a table of a width in columns, and above it what
// is under way.
func DrawSwitches(s Switches, width int, now time.Time) string {
	var out strings.Builder
	switch {
	case s.Now.Switching():
		out.WriteString(wrap("", fmt.Sprintf("%s, from %s to %s. %s", s.Node, name(s.Now.From), name(s.Now.To), s.Now.Doings(now)), 0, width) + "\n")
	case s.Now.State == v1alpha1.Failed:
		out.WriteString(wrap("", s.Node+": "+s.Now.Failure(now), 0, width) + "\n")
	}
	if len(s.History) == 0 {
		out.WriteString(wrap("", fmt.Sprintf("No switch of %s is over yet.", s.Node), 0, width))
		return out.String()
	}
	t := &table{head: []string{"STARTED (UTC)", "TOOK", "FROM", "TO", "RESULT", "EVICTED", "REASON"}}
	for i := range s.History {
		r := &s.History[i]
		took := time.Duration(r.Seconds * float64(time.Second)).Round(time.Second / 10)
		text := r.Reason
		if r.Message != "" {
			text = strings.TrimPrefix(text+": "+r.Message, ": ")
		}
		t.rows = append(t.rows, []string{r.Started.Format(time.DateTime), took.String(), cmp.Or(r.From, "-"), cmp.Or(r.To, "-"),
			r.Result, strconv.Itoa(int(r.Evicted)), text})
	}
	out.WriteString(t.draw(width))
	return out.String()
}

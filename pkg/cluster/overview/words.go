package overview

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/text"
)

// Product is a model of GPUs, and how many of them a node has.
type Product struct {
	Name  string
	Count int
}

// String returns the product for people: "8 × H100".
func (p Product) String() string { return fmt.Sprintf("%d × %s", p.Count, p.Name) }

// ProductName returns the name of a model of GPUs for people, also if the driver does not tell it.
func ProductName(name string) string { return cmp.Or(name, "GPU of unknown model") }

// ProductsOf returns the models of a node's GPUs, in the order in which they come.
func ProductsOf(n *cluster.Node) []Product {
	var out []Product
	for i := range n.GPUs {
		name := ProductName(n.GPUs[i].ProductName)
		at := slices.IndexFunc(out, func(p Product) bool { return p.Name == name })
		if at < 0 {
			at = len(out)
			out = append(out, Product{Name: name})
		}
		out[at].Count++
	}
	return out
}

// ModelOf names the GPUs of a node: "8 × NVIDIA H100 80GB HBM3".
func ModelOf(n *cluster.Node) string {
	return cmp.Or(strings.Join(lists.Map(ProductsOf(n), Product.String), ", "), "no GPUs are published")
}

var gpuName = regexp.MustCompile(`^gpu-([0-9a-f]{4,8})-([0-9a-f]{2})-([0-9a-f]{2})-([0-7])$`)

// ShortName returns the PCI address of a GPU without the usual domain, or its name if that has none.
func ShortName(gpu string) string {
	return strings.TrimPrefix(gpuName.ReplaceAllString(gpu, "$1:$2:$3.$4"), "0000:")
}

// Tone is how good or bad something is.
type Tone string

// The tones. Without one, it is neither.
const (
	OK   Tone = "ok"
	Warn Tone = "warn"
	Bad  Tone = "bad"
)

// Note is something to know about a GPU: what it is about, such as "problem: ", and a text without a
// full stop.
type Note struct {
	About, Text string
	Tone        Tone
}

// StateNotes returns the notes of the state of a GPU.
func StateNotes(s cluster.GPUState) []Note {
	all := []Note{{"problem: ", s.Problem, Bad}, {"changes: ", s.Change, Warn}, {"pending: ", s.Pending, ""}}
	return slices.DeleteFunc(all, func(n Note) bool { return n.Text == "" })
}

// NotesOf returns what keeps claims off a GPU, or soon will, beside its taints.
func NotesOf(g *cluster.GPU) []Note {
	out := StateNotes(g.GPUState)
	if g.MissingSlices > 0 {
		out = append(out, Note{"", notInFull(g) + "; the scheduler ignores the GPU", Warn})
	}
	return out
}

func notInFull(g *cluster.GPU) string {
	return "is not published in full: " + text.Count(int(g.MissingSlices), "ResourceSlice") + " missing"
}

// taintWords describe taints without a value.
var taintWords = map[string]string{
	names.TaintUnhealthy: "out of service", names.TaintDriverUpgrade: "its driver is being replaced",
	names.TaintBusy: "kept in its mode by a process without a claim",
}

// TaintNote says why devices of a GPU are tainted, and which. The source is the taint, and the rules
// that set it.
func TaintNote(t *cluster.Taint) (note Note, source string) {
	reason := cmp.Or(t.Value, taintWords[t.Key], t.Key)
	if t.Key == names.TaintSwitching {
		reason = "being switched to " + text.Profile(t.Value)
	}
	extent := "the whole GPU"
	if t.Devices != t.Of {
		extent = fmt.Sprintf("%d of %d devices", t.Devices, t.Of)
	}
	source = t.Key + ":" + string(t.Effect)
	if len(t.Rules) > 0 {
		source += " by DeviceTaintRule " + strings.Join(t.Rules, ", ")
	}
	return Note{"tainted: ", reason + ", " + extent, Warn}, source
}

// Who names a holder: its pods and other consumers, and its claim, which is empty if it is hidden.
func Who(o *cluster.Holder) (consumers []string, claim string) {
	all := o.Consumers()
	switch {
	case o.Hidden:
		return []string{"another namespace"}, ""
	case len(all) == 0:
		return []string{"no pod"}, o.Namespace + "/" + o.Claim
	}
	for _, name := range all {
		consumers = append(consumers, o.Namespace+"/"+name)
	}
	return consumers, o.Claim
}

// Position describes a position of a bar that nobody holds.
func Position(s cluster.State) string {
	return map[cluster.State]string{
		cluster.Free: "free", cluster.Unknown: "not known", cluster.Blocked: "blocked by a taint",
		cluster.Leftover: "left over: no piece fits there beside those that are held",
	}[s]
}

// Took returns how long a switch took.
func Took(s *v1beta1.SwitchRecord) string { return s.Duration.Round(time.Second / 10).String() }

// RolloutTone returns how good the end of a rollout is.
func RolloutTone(r *cluster.Rollout) Tone {
	switch r.Result {
	case cluster.RolloutComplete:
		return OK
	case cluster.RolloutStopped, cluster.RolloutInvalid:
		return Bad
	}
	return ""
}

// Outcome says why a node does not get the profile of a plan: " (Unhealthy): it does not answer".
func Outcome(n *v1beta1.PlanNode) string {
	out := ""
	if n.Reason != "" {
		out = " (" + n.Reason + ")"
	}
	if n.Message != "" {
		out += ": " + n.Message
	}
	return out
}

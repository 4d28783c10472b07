package overview_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/test/golden"
	"github.com/tranche-dev/tranche/test/scenes"
)

// sceneSnapshot is a scene as the page has it.
func sceneSnapshot(scene scenes.Scene) *overview.Snapshot {
	summary := scene.Summary()
	s := &overview.Snapshot{Waiting: summary.Waiting, Partial: summary.Partial, Kinds: []overview.Kind{
		{Label: cluster.WholeGPU, Class: "gpu.tranche.dev"}, {Label: "1g.10gb", Class: "gpu-mig-1g-10gb.tranche.dev"},
		{Label: "3g.40gb", Attribute: "profile", Value: "3g.40gb"}, {Label: "unselected"},
		{Label: "memory share", By: gpu.ByMemory}, {Label: "fraction share", By: gpu.ByFraction, Class: "own-share"},
		{Label: "3g.40gb memory share", By: gpu.ByMemory, Profile: "3g.40gb"},
	}}
	for _, n := range summary.Nodes {
		s.Nodes = append(s.Nodes, overview.NewNode(n))
	}
	return s
}

func requireYAML(t *testing.T, name string, v any) {
	t.Helper()
	data, err := yaml.Marshal(v)
	require.NoError(t, err)
	golden.Equal(t, filepath.Join("testdata", name+".yaml"), string(data))
}

type saidOfNode struct {
	Says, State string
	Reasons     []string         `json:",omitempty"`
	States      []string         `json:",omitempty"`
	Cells       []string         `json:",omitempty"`
	GPUs        []string         `json:",omitempty"`
	Remarks     []cluster.Remark `json:",omitempty"`
	Memory      overview.Memory
}

// What is said of the nodes of each scene: in the summary, in the heat map, and of GPUs.
func TestScenes(t *testing.T) {
	all := map[string]func() scenes.Scene{"fleet": scenes.Fleet}
	for _, name := range []string{"no-gpus", "mixed", "tainted", "incomplete", "hidden", "partial", "amd-busy", "unpublished", "shared", "following", "switching", "switch-failed"} {
		all[name] = scenes.All[name]
	}
	for name, scene := range all {
		t.Run(name, func(t *testing.T) {
			summary, s := scene().Summary(), sceneSnapshot(scene())
			var said struct {
				Line     string
				Overview overview.Overview
				Totals   overview.Totals
				Groups   []string     `json:",omitempty"`
				Nodes    []saidOfNode `json:",omitempty"`
			}
			said.Line, said.Overview, said.Totals = overview.Line(summary), overview.Of(summary), overview.TotalsOf(overview.Viewer{}, s)
			for _, g := range overview.GroupsOf(s) {
				said.Groups = append(said.Groups, fmt.Sprintf("%s: %d nodes, %d GPUs, %d%% held, fits %v", g.Model, len(g.Nodes), g.GPUs, g.Memory.Percent(), g.Fits))
			}
			for _, n := range s.Nodes {
				state, reasons := overview.StateOf(&n.Node, summary.Now)
				of := saidOfNode{Says: n.Says(), State: string(state), Reasons: reasons, States: n.States(), Remarks: n.Remarks(summary.Now), Memory: n.Memory}
				for _, c := range n.Cells {
					of.Cells = append(of.Cells, fmt.Sprintf("%s %d open:%t %s", overview.ShortName(c.GPU), c.Level, c.Open, c.Mark))
					g := n.GPU(c.GPU)
					for _, note := range overview.NotesOf(g) {
						of.GPUs = append(of.GPUs, fmt.Sprintf("%s: %s%s (%s)", g.Name, note.About, note.Text, note.Tone))
					}
					for i := range g.Taints {
						note, source := overview.TaintNote(&g.Taints[i])
						of.GPUs = append(of.GPUs, fmt.Sprintf("%s: %s%s (%s): %s", g.Name, note.About, note.Text, note.Tone, source))
					}
					for _, h := range g.Held {
						for _, o := range h.Holders {
							pods, claim := overview.Who(&o)
							of.GPUs = append(of.GPUs, fmt.Sprintf("%s: %s of %v, claim %q", g.Name, h.Label, pods, claim))
						}
					}
				}
				said.Nodes = append(said.Nodes, of)
			}
			requireYAML(t, name, said)
		})
	}
}

// What fits of what a person types, and a claim for it.
func TestRoom(t *testing.T) {
	type said struct {
		Label, Share, Wrong, Never, Claim string           `json:",omitempty"`
		Count                             int              `json:",omitempty"`
		Places                            []overview.Place `json:",omitempty"`
		Partitions                        []string         `json:",omitempty"`
		Known, Shared, Uncertain          bool             `json:",omitempty"`
	}
	for name, scene := range map[string]scenes.Scene{"fleet": scenes.Fleet(), "shared": scenes.Shared(), "partial": scenes.Partial()} {
		rooms := map[string]said{}
		for _, typed := range []string{
			"gpu", "whole", " 1G.10gb", "3g.40gb", "unselected", "nonsense", "5",
			"11Gi", "2Gi, 4 clients", "0.5", "memory share", "fraction share", "9000Gi", "2Gi, 9999 clients", "2Gi, 1% of compute", "8Gi of 3g.40gb",
		} {
			r := overview.RoomFor(sceneSnapshot(scene), typed)
			of := said{Label: r.Kind.Label, Wrong: r.Wrong, Never: r.Never, Count: r.Count, Places: r.Places, Known: r.Known, Shared: r.Shared, Uncertain: r.Uncertain}
			for _, f := range r.Partitions {
				of.Partitions = append(of.Partitions, fmt.Sprintf("%s with %s ×%d", f.Label, text.Bytes(int64(f.Memory)), f.Count))
			}
			if r.Share != nil {
				of.Share = r.Share.String()
			}
			if template, pod, found := strings.Cut(r.Claim, "---\n"); found && name == "shared" {
				of.Claim = template
				if typed == "gpu" {
					of.Claim += pod // The others differ in the name of the template.
				}
			}
			rooms[typed] = of
		}
		requireYAML(t, "room-"+name, rooms)
	}
}

func TestWords(t *testing.T) {
	words := map[string]string{
		"took":             overview.Took(&v1beta1.SwitchRecord{Duration: metav1.Duration{Duration: 83260 * time.Millisecond}}),
		"outcome":          overview.Outcome(&v1beta1.PlanNode{Reason: "Unhealthy", Message: "it does not answer"}),
		"outcome, nothing": overview.Outcome(&v1beta1.PlanNode{}),
		"complete":         string(overview.RolloutTone(&cluster.Rollout{Result: cluster.RolloutComplete})),
		"stopped":          string(overview.RolloutTone(&cluster.Rollout{Result: cluster.RolloutStopped})),
		"invalid":          string(overview.RolloutTone(&cluster.Rollout{Result: cluster.RolloutInvalid})),
		"in progress":      string(overview.RolloutTone(&cluster.Rollout{})),
		"another domain":   overview.ShortName("gpu-0001-0f-00-0"),
		"no address":       overview.ShortName("gpu-x"),
		"percent of none":  fmt.Sprint(overview.Memory{}.Percent()),
		"percent, rounded": fmt.Sprint(overview.Memory{TotalBytes: 1000, HeldBytes: 125}.Percent(), overview.Memory{TotalBytes: 1000, HeldBytes: 124}.Percent()),
	}
	note, source := overview.TaintNote(&cluster.Taint{Key: names.TaintSwitching, Value: "cpx", Effect: "NoSchedule", Devices: 1, Of: 1})
	words["taint of a switch"] = fmt.Sprint(note, " by ", source)
	for _, s := range []cluster.State{cluster.Free, cluster.Unknown, cluster.Blocked, cluster.Leftover, cluster.Taken} {
		words["position "+string(s)] = overview.Position(s)
	}
	requireYAML(t, "words", words)
}

package fit_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/why/demand"
	"github.com/tranche-dev/tranche/pkg/why/fit"
	"github.com/tranche-dev/tranche/test/golden"
	"github.com/tranche-dev/tranche/test/pending"
)

func newWorld(t testing.TB) *pending.World { return pending.New(t, "../../..") }

// nodesFor evaluates all nodes for the pod.
func nodesFor(w *pending.World) (*demand.Demand, []fit.Node) {
	d := demand.Of(demand.Input{Pod: w.In.Pod, Claims: w.In.Claims, Templates: w.In.Templates, Classes: w.In.Classes, Storage: w.In.Storage})
	m := fit.NewModel(w.In.Objects, w.In.Partial)
	return d, m.Nodes(w.T.Context(), d, m.Summary(w.T.Context(), cluster.View{}).Nodes)
}

// requireNodes compares what is said of the nodes with a golden file.
func requireNodes(t *testing.T, name string, w *pending.World) {
	t.Helper()
	d, nodes := nodesFor(w)
	data, err := yaml.Marshal(struct {
		Asks     []demand.Ask
		Summary  string
		Event    string
		Sorted   []fit.Node
		Remedies []fit.Remedy
	}{d.Asks(), fit.Summary(nodes), fit.CountsOf(nodes).Event(true), fit.Sorted(nodes), fit.Remedies(nodes)})
	require.NoError(t, err)
	golden.Equal(t, filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".yaml"), string(data))
}

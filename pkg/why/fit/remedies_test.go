package fit

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/test/gpunodes"
)

// Advice is given only where it helps. The expected commands are those of the advice in its order.
func TestRemedies(t *testing.T) {
	hiding := cluster.ProgressOf(&gpunodes.WithProfile("n", "p", v1beta1.Rule{MIG: &v1beta1.MIG{Mode: v1beta1.MIGDisabled}}).GPUNode)
	switching, failed := hiding, cluster.Progress{State: v1beta1.Failed}
	switching.State = v1beta1.Draining
	tainted := func(taints ...cluster.Taint) []Node {
		return []Node{{Name: "n", Verdict: Tainted, Requests: []Request{{Taints: taints}}}}
	}
	excluded := func(command string, requests []Request, more ...*Cause) Node {
		return Node{Name: "n", Verdict: Excluded, Requests: requests, causes: append(more, &Cause{remedy: Remedy{command, command}})}
	}
	const what, wait, setProfile = "kubectl tranche", "", "kubectl tranche set-profile n PROFILE --wait"
	fits, full := []Request{{Verdict: Fits}}, []Request{{Verdict: Fits}, {Verdict: Full}}
	free := []cluster.Fit{{Label: "1g.10gb", Count: 2}}
	for name, test := range map[string]struct {
		nodes []Node
		want  []string
	}{
		"no nodes":                      {nil, nil},
		"a profile hides them":          {[]Node{{Name: "n", Verdict: Lacking, Profile: &hiding}}, []string{what, setProfile}},
		"the node is closed, too":       {[]Node{{Name: "n", Verdict: Lacking, Profile: &hiding, excluded: true}}, []string{what}},
		"it gets another profile":       {[]Node{{Name: "n", Verdict: Lacking, Profile: &switching}}, []string{what}},
		"the profile hides nothing":     {[]Node{{Name: "n", Verdict: Lacking, Profile: &cluster.Progress{}}}, []string{what}},
		"no profile, and others full":   {[]Node{{Name: "n", Verdict: Lacking}, {Name: "m", Verdict: Full, Profile: &hiding}}, []string{wait}},
		"a taint of the plugin":         {tainted(cluster.Taint{}), []string{"kubectl describe node n"}},
		"taints of rules":               {tainted(cluster.Taint{Rules: []string{"a", "b"}}, cluster.Taint{Rules: []string{"a"}}, cluster.Taint{}), []string{"kubectl delete devicetaintrule a", "kubectl delete devicetaintrule b"}},
		"taints on other requests only": {tainted(), nil},
		"something else is free":        {[]Node{{Name: "m", Verdict: Fits, Free: free, Profile: &failed}, {Name: "n", Verdict: Full, Free: free, Profile: &failed}}, []string{wait, "", "kubectl tranche switches n"}},
		"nothing of use is free":        {[]Node{{Name: "n", Verdict: Unclear, Free: free}, {Name: "n", Verdict: NotTogether}}, []string{""}},
		"closed but free":               {[]Node{{Verdict: Full}, excluded("second", fits, &Cause{}, &Cause{}), excluded("first", fits, &Cause{})}, []string{wait, "first"}},
		"closed and full, others full":  {[]Node{{Verdict: Full}, excluded("first", full)}, []string{wait}},
		"closed and full":               {[]Node{{Verdict: Lacking}, excluded("none", nil), excluded("first", full)}, []string{"first", ""}},
		"closed without such devices":   {[]Node{excluded("first", nil)}, nil},
		"a way":                         {[]Node{{Name: "n", Verdict: Full, way: &way{devices: []string{"d"}}}}, []string{""}},
	} {
		assert.Equal(t, test.want, lists.Map(Remedies(test.nodes), func(r Remedy) string { return r.Command }), name)
	}
}

package cluster_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/pkg/cluster"
)

func TestNamesIn(t *testing.T) {
	for selector, want := range map[string][]string{
		`device.attributes["a.b"].name == "value"`:                                          {"name", "attributes", "a.b"},
		`device.attributes["a.b"].?name.orValue("value") == "other"`:                        {"name", "attributes", "a.b"},
		`device.capacity["a.b"]["name"].compareTo(quantity("1Gi")) >= 0`:                    {"name", "capacity", "a.b"},
		`cel.bind(d, device.attributes["a.b"], has(d.one) && d[?"two"].orValue("") == "x")`: {"attributes", "a.b", "one", "two"},
		`["x"].exists(x, device.attributes["a.b"][x] == "y")`:                               {"attributes", "a.b"},
		`device.(`: nil,
	} {
		assert.ElementsMatch(t, want, cluster.NamesIn(selector), selector)
	}
}

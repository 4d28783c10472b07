package picture

import (
	"fmt"
	"strings"

	"github.com/tranche-dev/tranche/pkg/defrag"
	"github.com/tranche-dev/tranche/pkg/text"
)

// DrawAdvice writes which pods could move to make room for waiting pods.
func DrawAdvice(p *Page, a defrag.Advice) {
	if len(a.Pods) == 0 {
		p.Wrap("", "No pod waits for a GPU.", Normal)
	} else {
		p.Wrap("", "Nothing was changed. Each plan is made as if no other pod waited.", Normal)
	}
	for _, pod := range a.Pods {
		p.Blank()
		if pod.Refusal != nil {
			p.Wrap("", fmt.Sprintf("%s/%s: no plan (%s). %s", pod.Pod.Namespace, pod.Pod.Name, pod.Refusal.Reason, pod.Refusal.Message), Yellow)
			continue
		}
		p.Wrap("", fmt.Sprintf("%s/%s would get %s on node %s if %s moved:", pod.Pod.Namespace, pod.Pod.Name, strings.Join(pod.Devices, ", "), pod.NodeName, text.Count(len(pod.Moves), "pod")), Bold)
		var rows [][]string
		for _, m := range pod.Moves {
			rows = append(rows, []string{m.Namespace + "/" + m.Name, strings.Join(m.FromDevices, ", "), m.ToNodeName, strings.Join(m.ToDevices, ", ")})
		}
		p.Table([]string{"POD", "FROM DEVICE", "TO NODE", "TO DEVICE"}, rows)
	}
	p.Unread(a.Unread)
}

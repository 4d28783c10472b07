package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why/demand"
	"github.com/tranche-dev/tranche/pkg/why/quota"
	"github.com/tranche-dev/tranche/pkg/why/unread"
)

// judge sets the summary and the remedies from the explanations of the nodes.
func (e *Explanation) judge(c *world, d demand.Demand) {
	who := e.Namespace + "/" + e.Pod
	with := func(verdicts ...Verdict) []Node {
		return slices.DeleteFunc(slices.Clone(e.Nodes), func(n Node) bool { return !slices.Contains(verdicts, n.Verdict) })
	}
	fit := with(Fits)
	doubts := c.in.doubts()
	switch {
	case c.in.Classes == nil:
		e.State = Unknown
		e.Summary = who + " has no node yet. The reason cannot be determined without the DeviceClasses."
		e.remedyClasses()
	case c.in.Slices == nil:
		e.State = Unknown
		e.Summary = who + " has no node yet. The reason cannot be determined without the ResourceSlices."
	case len(e.Nodes) == 0:
		e.State = NoRoom
		e.Summary = who + " waits for a GPU, and no node publishes any."
		e.remedy("see whether the plugin runs on the nodes with GPUs:", "kubectl get daemonsets "+cluster.InSystem(cluster.SystemNamespace(c.Classes))+" -l "+cluster.PluginLabel)
	case len(d.Unallocated) == 0:
		e.State = NoRoom
		e.Summary = who + " has its devices, and no node yet: it must go where they are."
		if len(fit) > 0 {
			e.Summary = fmt.Sprintf("%s has its devices, on %s, and waits for something else there.", who, nodeNames(fit))
		}
	case len(fit) > 0 && len(doubts) > 0:
		e.doubtful(who, fit, doubts, told(c.in), c.in.Now)
	case len(fit) > 0:
		e.roomNow(who, fit, c.in.Pod)
	case len(d.Extended) > 0 && c.in.unread(unread.Nodes):
		e.State = Unknown
		e.Summary = who + " has no node yet. Tranche's devices do not serve it now: " + e.reason() + " Without the nodes it cannot be told whether a device plugin could."
	default:
		e.State = NoRoom
		e.Summary = who + " waits for a device: " + e.reason()
		if unclear := with(Unclear); len(unclear) > 0 {
			e.State = Unknown
			e.Summary = who + " has no node yet: " + unclear[0].unclear()
		}
	}
	if e.others && e.State == NoRoom && e.answer() == None {
		e.Summary += " Whether devices of another driver can serve it is not explained here."
	}
	if e.State == NoRoom || e.State == Unknown {
		e.remedies(with)
	}
}

// doubtful is for devices that look free to who may not see everything. If the controller, which sees
// everything, has written why the pod waits, that is the answer.
func (e *Explanation) doubtful(who string, fit []Node, doubts []string, word *corev1.Event, now time.Time) {
	e.State = Unknown
	e.Summary = fmt.Sprintf("%s has no node yet. By what you may see, its devices are free on %s; but %s, which you may not see.", who, nodeNames(fit), strings.Join(doubts, ", and "))
	if word != nil {
		e.State, e.Answer = NoRoom, Answer(word.Reason)
		e.Quotes = append(e.Quotes, Quote{
			Who: speaker(*word) + " about the pod " + e.Pod, Reason: word.Reason, Age: ageOf(now, last(*word)), Message: word.Message,
		})
		e.Summary = fmt.Sprintf("%s waits for a device, as Tranche's controller says, which sees all objects (%s). By what you may see, its devices are free on %s.", who, word.Reason, nodeNames(fit))
		return
	}
	e.remedy("wait for the event that Tranche's controller writes on a pod that waits for longer than a minute, or ask an administrator to run this command.", "")
}

// roomNow is for devices that would fit now. It is not known whether the scheduler has tried again
// since then, so it also names what else decides where the pod can run.
func (e *Explanation) roomNow(who string, fit []Node, pod *corev1.Pod) {
	e.State = RoomNow
	e.Summary = fmt.Sprintf("%s would get its devices on %s now. Either the scheduler has not tried again yet, or something else keeps the pod away.", who, nodeNames(fit))
	e.remedy("wait: the scheduler tries again when something changes, and every five minutes at the latest.", "")
	text := "if it goes on, the devices are not the reason; the scheduler's message tells what is."
	if others := demand.Others(pod); len(others) > 0 {
		text += " Beside devices, the pod asks for: " + strings.Join(others, "; ") + "."
	}
	e.remedy(text, "")
}

// remedyClasses is for users who may not list DeviceClasses.
func (e *Explanation) remedyClasses() {
	e.remedy("ask an administrator for the right to list deviceclasses.resource.k8s.io, or to run this command. Whether you have it:",
		"kubectl auth can-i list deviceclasses.resource.k8s.io")
}

// phrase is a verdict in words: about one node, several nodes, and all nodes.
type phrase struct{ one, many, all string }

// phrases are the verdicts in words, for a request.
func phrases(of want) map[Verdict]phrase {
	what := of.kind.text
	a := "a " + what
	switch {
	case of.all:
		what = "every " + what
		a = what
	case of.count > 1:
		what = fmt.Sprintf("%d × %s", of.count, what)
		a = what
	}
	out := map[Verdict]phrase{
		Lacking:  {"has no " + what, "have no " + what, "no node has " + a},
		Full:     {"has no " + what + " free", "have no " + what + " free", "no node has " + a + " free"},
		Tainted:  {"has " + what + " on tainted GPUs only", "have " + what + " on tainted GPUs only", "all nodes have " + what + " on tainted GPUs only"},
		Excluded: {"is not open to this pod", "are not open to this pod", "no node is open to this pod"},
		Together: {"cannot give everything at once", "cannot give everything at once", "no node can give everything at once"},
		Never: {"could not give all this even if all devices were free", "could not give all this even if all devices were free",
			"no node could give all this even if nobody held anything"},
		Unusable: {"has GPUs that cannot be used now", "have GPUs that cannot be used now", "all nodes have GPUs that cannot be used now"},
		Unclear:  {"cannot be judged", "cannot be judged", "no node can be judged"},
		Fits:     {"may have room", "may have room", "all nodes may have room"},
	}
	if of.all {
		out[Full] = phrase{"cannot give " + what, "cannot give " + what, "no node can give " + what}
	}
	return out
}

// reason is the common verdict of all nodes, or the different ones.
func (e *Explanation) reason() string {
	words := phrases(e.wanted())
	var parts []string
	for _, v := range []Verdict{Fits, Full, Together, Never, Tainted, Unusable, Excluded, Lacking, Unclear} {
		of := slices.DeleteFunc(slices.Clone(e.Nodes), func(n Node) bool { return n.Verdict != v })
		switch {
		case len(of) == 0:
		case !slices.ContainsFunc(of, func(n Node) bool { return !n.switching }):
			be := "is"
			if len(of) > 1 {
				be = "are"
			}
			parts = append(parts, nodeNames(of)+" "+be+" being switched to another profile")
		case len(of) == 1:
			parts = append(parts, of[0].Name+" "+words[v].one)
		case len(of) == len(e.Nodes):
			return words[v].all + "."
		default:
			parts = append(parts, nodeNames(of)+" "+words[v].many)
		}
	}
	return strings.Join(parts, "; ") + "."
}

// wanted is the request that fails first on some node.
func (e *Explanation) wanted() want {
	for _, n := range e.Nodes {
		for i, r := range n.Requests {
			if r.Verdict != Fits && i < len(e.Asks) {
				return e.Asks[i].first
			}
		}
	}
	return want{kind: kind{text: "such device"}, count: 1}
}

// unclear is why a node could not be judged.
func (n Node) unclear() string {
	for _, r := range n.Requests {
		if r.Verdict == Unclear {
			return r.Text
		}
	}
	return strings.Join(n.Reasons, " ")
}

func nodeNames(nodes []Node) string {
	const most = 3
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	return text.List(names, most)
}

// remedies adds what a person can do, the least effort first.
func (e *Explanation) remedies(with func(...Verdict) []Node) {
	add := func(format string, args ...any) { e.remedy(fmt.Sprintf(format, args...), "") }
	e.remedySwitch()
	if full := with(Full, Together); len(full) > 0 {
		e.remedyFull(full)
		if i := slices.IndexFunc(full, func(n Node) bool { return len(n.Free) > 0 }); i >= 0 {
			add("or ask for what is free now: %s on %s.", strings.Join(full[i].Free[:min(len(full[i].Free), maxNames)], " or "), full[i].Name)
		}
	}
	if len(with(Together)) > 0 {
		add("or ask for less at once, or drop the constraint, if the program can do without it.")
	}
	if len(with(Never)) > 0 {
		add("ask for less in one pod, or drop the constraint between its requests, if the program can do without it.")
	}
	var rules []string
	driverTainted := ""
	for _, n := range e.Nodes {
		for _, r := range n.Requests {
			rules = union(rules, r.Rules...)
			if len(r.Taints) > 0 && len(r.Rules) == 0 && r.Verdict != Fits && !n.switching {
				driverTainted = cmp.Or(driverTainted, n.Name)
			}
		}
	}
	for _, rule := range rules {
		e.remedy("when the reason for the taint is over, remove it:", "kubectl delete devicetaintrule "+rule)
	}
	if driverTainted != "" {
		e.remedy("Tranche's plugin set the taint and removes it when the reason is gone; see the node's events:", "kubectl describe node "+driverTainted)
	}
	badSelector := func(n Node) bool {
		return slices.ContainsFunc(n.Requests, func(r Request) bool { return r.badSelector })
	}
	if slices.ContainsFunc(e.Nodes, badSelector) {
		add(`correct the selector: an error in it ends every attempt to schedule the pod. Attributes that some devices lack are read with .?name.orValue("").`)
	}
	if unusable := with(Unusable); len(unusable) > 0 && unusable[0].withheld {
		e.remedy("the node's events say why its GPUs are withheld:", "kubectl describe node "+unusable[0].Name)
	}
	if lacking := with(Lacking); len(lacking) == len(e.Nodes) && len(lacking) > 0 {
		e.remedy("ask for something that a node has, or add a node whose GPUs have it. What there is:", "kubectl tranche")
	}
	e.remedyProfile()
	if excluded := with(Excluded); len(excluded) > 0 {
		i := slices.IndexFunc(excluded, func(n Node) bool {
			return len(n.Requests) > 0 && !n.switching && !slices.ContainsFunc(n.Requests, func(r Request) bool { return r.Verdict != Fits })
		})
		if i >= 0 {
			if excluded[i].cordoned {
				e.remedy(excluded[i].Name+" has the devices; when it no longer needs to be cordoned:", "kubectl uncordon "+excluded[i].Name)
			} else {
				add("%s has the devices: let the pod go there (its nodeSelector, affinity, tolerations, volumes and requests).", excluded[i].Name)
			}
		}
	}
}

// remedyMissing is for a pod with a missing claim.
func (e *Explanation) remedyMissing(in *Input) {
	if in.templatesThere() {
		// kube-controller-manager does not watch templates for this (pkg/controller/resourceclaim).
		e.remedy("wait: kube-controller-manager tries again, each time after twice as long, up to 17 minutes. A change of the pod has it tried at once:",
			fmt.Sprintf("kubectl annotate pod %s -n %s --overwrite retried=\"$(date)\"", e.Pod, e.Namespace))
	}
	if !slices.ContainsFunc(e.Quotes, func(q Quote) bool { return q.Reason == "FailedResourceClaimCreation" }) {
		if len(e.Remedies) == 0 {
			e.remedy("create what is missing; the pod continues automatically.", "")
		}
		return
	}
	if used := quota.Exceeded(in.Quotas, in.ofTemplates()); len(used) > 0 {
		e.Summary += " " + text.Capital(quota.Sentence(used)) + "."
		e.Exceeded = used
	}
	e.remedy("fix what the message says; the claim is created again automatically. If a quota is exceeded, see:", "kubectl describe quota -n "+e.Namespace)
}

// templatesThere tells whether the pod waits for claims of templates, and all of these exist.
func (in *Input) templatesThere() bool {
	for _, c := range in.Pod.Spec.ResourceClaims {
		named := func(t resourceapi.ResourceClaimTemplate) bool {
			return t.Name == ptr.Deref(c.ResourceClaimTemplateName, "")
		}
		if c.ResourceClaimTemplateName != nil && !slices.ContainsFunc(in.Templates, named) {
			return false
		}
	}
	return WaitsForClaims(in.Pod)
}

// ofTemplates is what the pod's claims from templates take of quotas.
func (in *Input) ofTemplates() corev1.ResourceList {
	sum := corev1.ResourceList{}
	for _, c := range in.Pod.Spec.ResourceClaims {
		for i := range in.Templates {
			if c.ResourceClaimTemplateName == nil || in.Templates[i].Name != *c.ResourceClaimTemplateName {
				continue
			}
			for name, n := range quota.OfClaim(&in.Templates[i].Spec.Spec, quota.Extended(in.Classes)) {
				n.Add(sum[name])
				sum[name] = n
			}
		}
	}
	return sum
}

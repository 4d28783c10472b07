package claimtemplates

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claimtemplate"
	"github.com/tranche-dev/tranche/pkg/text"
)

// warnIgnored tells the owners of pods that run without the GPU that an annotation asks for.
func (r *Reconciler) warnIgnored(namespace, project string, pods []corev1.Pod) {
	for i := range pods {
		key := claimtemplate.Ignored(&pods[i])
		if key == "" || ended(&pods[i]) {
			continue
		}
		note := fmt.Sprintf("Annotation %s gives this pod no GPU, because namespace %s does not have the label %s=%s: "+
			"ask an administrator for the label and create the pod again, or use a claim", key, namespace, names.LabelTranslate, names.TranslateKAI)
		if project == names.TranslateKAI {
			note = fmt.Sprintf("Annotation %s gives this pod no GPU, because it was created before pods of namespace %s were translated (label %s=%s, and translate.kai.enabled of the chart): "+
				"create the pod again", key, namespace, names.LabelTranslate, names.TranslateKAI)
		}
		r.warn(&pods[i], names.EventAnnotationIgnored, note)
	}
}

// warn writes an event about a pod, once.
func (r *Reconciler) warn(pod *corev1.Pod, reason, note string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told[pod.Namespace][pod.UID] {
		return
	}
	if r.told == nil {
		r.told = map[string]map[types.UID]bool{}
	}
	if r.told[pod.Namespace] == nil {
		r.told[pod.Namespace] = map[types.UID]bool{}
	}
	r.told[pod.Namespace][pod.UID] = true
	r.Events.Eventf(&corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
	}, nil, corev1.EventTypeWarning, reason, "Translate", "%s", text.Note(note))
}

func (r *Reconciler) forgetPods(namespace string, pods []corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.told[namespace]) == 0 {
		return
	}
	there := map[types.UID]bool{}
	for i := range pods {
		there[pods[i].UID] = true
	}
	maps.DeleteFunc(r.told[namespace], func(uid types.UID, _ bool) bool { return !there[uid] })
}

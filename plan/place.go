package plan

// Options say how a plan is made of a job.
type Options struct {
	// Resume says that the trainer holds a checkpoint that Init restores.
	Resume bool
	// Nodes is the number of worker nodes, 1 to Nodes, next to node 0 with the trainer. With 0
	// everything runs on node 0.
	Nodes int
}

// place lists the actors in canonical order and gives each a node: the trainer node 0; stages, in
// the order of pipeline rank and then data rank, contiguous and as even as possible over the
// workers; each shard the node of the stage of its ranks. So the replicas of a stage and the
// shards that sum their gradients sit together where the number of nodes allows it. A mirror is on the node
// after its shard's, so that the two do not end together.
func place(pl *Plan, nodes int) []Actor {
	pipeline, data := pl.Job.Layout.Pipeline, pl.Job.Layout.Data
	stages := pipeline * data
	workers := min(nodes, stages)
	node := make([]int, stages)
	if nodes > 0 {
		for w := range workers {
			for i := range span(evenly(stages, w, workers)) {
				node[i] = w + 1
			}
		}
	}
	actors := make([]Actor, 0, 1+3*stages)
	actors = append(actors, Actor{ID: Trainer})
	for p := range pipeline {
		for d := range data {
			actors = append(actors, Actor{StageID(p, d), node[p*data+d]})
		}
	}
	for p := range pipeline {
		for d := range data {
			actors = append(actors, Actor{ShardID(p, d), node[p*data+d]})
		}
	}
	if !pl.Job.Supervisor.Mirror {
		return actors
	}
	for p := range pipeline {
		for d := range data {
			if len(pl.Parts(p, d)) > 0 {
				n := node[p*data+d]
				if nodes > 0 {
					n = n%nodes + 1
				}
				actors = append(actors, Actor{MirrorID(p, d), n})
			}
		}
	}
	return actors
}

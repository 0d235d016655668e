//! Studies that propose deployments, replay them and rank the answers.

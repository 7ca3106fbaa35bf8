BEGIN TRANSACTION;
CREATE TABLE agent_messages (
                id INTEGER PRIMARY KEY AUTOINCREMENT,
                session_id TEXT NOT NULL,
                message_data TEXT NOT NULL,
                created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
                FOREIGN KEY (session_id) REFERENCES agent_sessions (session_id)
                    ON DELETE CASCADE
            );
INSERT INTO "agent_messages" VALUES(1,'hike','{"role": "user", "content": "Which hut is next?"}','2026-11-30 09:19:48');
INSERT INTO "agent_messages" VALUES(2,'hike','{"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Look it up."}]}','2026-11-30 09:19:48');
INSERT INTO "agent_messages" VALUES(3,'hike','{"type": "function_call", "call_id": "c1", "name": "find_hut", "arguments": "{\"km\": 12}", "id": "fc_1"}','2026-11-30 09:19:48');
INSERT INTO "agent_messages" VALUES(4,'hike','{"type": "function_call_output", "call_id": "c1", "output": "\u00d8deg\u00e5rd, 4 beds"}','2026-11-30 09:19:48');
INSERT INTO "agent_messages" VALUES(5,'hike','{"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": [{"type": "output_text", "text": "The \u00d8deg\u00e5rd hut.", "annotations": []}]}','2026-11-30 09:19:48');
INSERT INTO "agent_messages" VALUES(6,'other','{"role": "user", "content": "Hello"}','2026-11-30 09:19:48');
CREATE TABLE agent_sessions (
                session_id TEXT PRIMARY KEY,
                created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
                updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP
            );
INSERT INTO "agent_sessions" VALUES('hike','2026-11-30 09:19:48','2026-11-30 09:19:48');
INSERT INTO "agent_sessions" VALUES('other','2026-11-30 09:19:48','2026-11-30 09:19:48');
CREATE INDEX idx_agent_messages_session_id
            ON agent_messages (session_id, id)
        ;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('agent_messages',6);
COMMIT;

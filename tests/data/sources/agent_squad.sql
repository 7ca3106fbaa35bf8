BEGIN TRANSACTION;
CREATE TABLE conversations (
                    user_id TEXT NOT NULL,
                    session_id TEXT NOT NULL,
                    agent_id TEXT NOT NULL,
                    message_index INTEGER NOT NULL,
                    role TEXT NOT NULL,
                    content TEXT NOT NULL,
                    timestamp INTEGER NOT NULL,
                    PRIMARY KEY (user_id, session_id, agent_id, message_index)
                );
INSERT INTO "conversations" VALUES('ada','hike','guide',0,'user','[{"text": "Which hut is next?"}]',1796030378883);
INSERT INTO "conversations" VALUES('ada','hike','guide',1,'assistant','[{"text": "The \u00d8deg\u00e5rd hut."}, {"toolUse": {"toolUseId": "t1", "name": "find_hut", "input": {"km": 12}}}]',1796030378884);
INSERT INTO "conversations" VALUES('ada','hike','guide',2,'user','[{"toolResult": {"toolUseId": "t1", "content": [{"json": {"name": "\u00d8deg\u00e5rd", "beds": 4}}]}}]',1796030378942);
INSERT INTO "conversations" VALUES('ada','hike','guide',3,'assistant','[{"text": "Four beds are free."}]',1796030378972);
INSERT INTO "conversations" VALUES('ada','hike','weather',0,'user','[{"text": "Rain tomorrow?"}]',1796030379000);
INSERT INTO "conversations" VALUES('bob','s2','guide',0,'user','[{"text": "Hello"}]',1796030379023);
CREATE INDEX idx_conversations_lookup
                ON conversations(user_id, session_id, agent_id)
            ;
COMMIT;
